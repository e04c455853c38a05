"""What kind of column an Arrow type is. `semistream.columns` decides by it how to store one."""

import pyarrow as pa


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type that an extension type is stored as; any other type itself."""
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def storage_array(array: pa.Array) -> pa.Array:
    """Return the array that an extension array is stored as; any other array itself."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def wrap_storage(dtype: pa.DataType, storage: pa.Array) -> pa.Array:
    """Return an array of the type over its storage, the inverse of `storage_array`."""
    if isinstance(dtype, pa.BaseExtensionType):
        return dtype.wrap_array(storage)
    return storage


def is_text(dtype: pa.DataType) -> bool:
    """Whether values are strings with offsets."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def is_view(dtype: pa.DataType) -> bool:
    """Whether values are strings or binaries in the form of views."""
    return bool(pa.types.is_string_view(dtype) or pa.types.is_binary_view(dtype))


def is_large(dtype: pa.DataType) -> bool:
    """Whether values are strings or binaries with 64-bit offsets."""
    return bool(pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype))


def is_bytes(dtype: pa.DataType) -> bool:
    """Whether values are strings or binaries with offsets."""
    return is_text(dtype) or is_large(dtype) or bool(pa.types.is_binary(dtype))


def bit_width(dtype: pa.DataType) -> int:
    """Return the bits of a fixed-width leaf type, 0 for every other type."""
    if pa.types.is_nested(dtype) or pa.types.is_null(dtype) or is_bytes(dtype):
        return 0
    try:
        return int(dtype.bit_width)
    except ValueError:
        return 0


def has_union(dtype: pa.DataType) -> bool:
    """Whether the type is a union, or has one in it."""
    if isinstance(dtype, pa.BaseExtensionType):
        return has_union(dtype.storage_type)
    if pa.types.is_union(dtype):
        return True
    if pa.types.is_dictionary(dtype):
        return has_union(dtype.value_type)
    if pa.types.is_run_end_encoded(dtype):
        return has_union(dtype.value_type)
    return any(has_union(dtype.field(i).type) for i in range(dtype.num_fields))
