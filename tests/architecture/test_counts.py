"""The repository stays small: few files, none of them long, short functions, and one class for a name."""

from __future__ import annotations

from counts import PACKAGES, TESTS, homonyms, long_files, long_functions, modules

CORE_FILES, ALL_FILES = 156, 345


def test_the_core_has_few_files() -> None:
    assert len(modules(PACKAGES[0])) <= CORE_FILES


def test_the_packages_have_few_files() -> None:
    assert sum(len(modules(folder)) for folder in PACKAGES) <= ALL_FILES


def test_files_are_short() -> None:
    assert long_files((*PACKAGES, TESTS)) == []


def test_functions_are_short() -> None:
    assert long_functions((*PACKAGES, TESTS)) == []


def test_no_two_public_classes_share_a_name() -> None:
    assert homonyms() == {}
