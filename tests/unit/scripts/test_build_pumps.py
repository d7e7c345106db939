"""The jar that ships is what its source compiles to; only who changes it needs a JDK."""

import re
import shutil
import subprocess
import zipfile

import pytest

from scripts import build_pumps


def javac_is_the_one() -> bool:
    if shutil.which("javac") is None:
        return False
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    return re.search(rf"javac {build_pumps.RELEASE}\.", said.stdout + said.stderr) is not None


def test_the_jar_holds_the_classes_of_the_pumps_and_nothing_else():
    with zipfile.ZipFile(build_pumps.JAR) as jar:
        names = jar.namelist()
    assert "tidegate/exchange/Pumps.class" in names
    assert all(re.fullmatch(r"tidegate/exchange/Pumps(\$\w+)*\.class", name) for name in names)


@pytest.mark.slow
@pytest.mark.skipif(not javac_is_the_one(), reason="there is no JDK 17 here to compile with")
def test_the_jar_is_what_its_source_compiles_to():
    with zipfile.ZipFile(build_pumps.JAR) as jar:
        shipped = {name: jar.read(name) for name in jar.namelist()}
    assert build_pumps.classes() == shipped
