import pytest

from semistream.errors import MissingPackageError
from semistream.extras import needs_extra


def test_a_missing_package_is_named_with_the_command_that_adds_it() -> None:
    with pytest.raises(MissingPackageError) as error, needs_extra("lab", "the lab"):
        import no_such_package.part  # noqa: F401
    assert str(error.value) == (
        "the lab needs the package no_such_package, which is not installed. Install it: "
        "pip install 'semistream[lab]'"
    )
    assert error.value.name == "no_such_package"


def test_whoever_expects_an_import_error_gets_one() -> None:
    with pytest.raises(ImportError), needs_extra("lab", "the lab"):
        import no_such_package  # noqa: F401


def test_a_module_of_ours_that_is_missing_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"semistream\.nowhere") as error:  # noqa: SIM117
        with needs_extra("lab", "the lab"):
            import semistream.nowhere  # noqa: F401
    assert not isinstance(error.value, MissingPackageError)
