"""Makes .venv-spark-VERSION: the packages of .venv, but another version of PySpark.

Run by the Python of .venv. Does nothing when the environment is already there.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(version: str) -> None:
    environment = ROOT / f".venv-spark-{version}"
    ready = environment / ".tidegate-ready"
    if ready.exists():
        return
    print(f"Installing PySpark {version} into {environment.name} ...", flush=True)
    venv.create(environment, clear=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.check_call([*pip, "install", "--quiet", "--use-pep517", f"pyspark=={version}"])
    # What an environment has itself is found before what it borrows.
    borrowed = sysconfig.get_path("purelib")
    own = next(environment.glob("lib/python*/site-packages"))
    (own / "borrowed.pth").write_text(f"import site; site.addsitedir({borrowed!r})\n")
    ready.touch()


if __name__ == "__main__":
    main(sys.argv[1])
