"""What kernels do with addresses: read arrays through them, and copy single values.

So a kernel can work on any number of columns, whose arrays need not be copied to lie side by side.
The caller keeps them alive.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _make_pointer(pointed_to: Any) -> Any:
    """Return a function that turns an address into a pointer."""

    def make(context, address):
        def build(context, builder, signature, arguments):
            to = context.get_value_type(signature.return_type)
            return builder.inttoptr(arguments[0], to)

        return types.CPointer(pointed_to)(types.int64), build

    return intrinsic(make)


def _make_move(width: int) -> Any:
    """Return a function that copies some bytes from one address to another, wherever these are."""

    def make(context, source, target):
        def build(context, builder, signature, arguments):
            number = ir.IntType(8 * width)
            source, target = (builder.inttoptr(a, number.as_pointer()) for a in arguments)
            builder.store(builder.load(source, align=1), target, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), build

    return intrinsic(make)


to_numbers = _make_pointer(types.int64)
to_flags = _make_pointer(types.boolean)
move_1, move_4, move_8 = map(_make_move, (1, 4, 8))
