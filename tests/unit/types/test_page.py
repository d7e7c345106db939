import re
from pathlib import Path

import tidegate

PAGE = Path(tidegate.__file__).parent.parent / "docs" / "types.md"


def test_the_examples_of_the_page_run():
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    scope = {"__name__": "types_page"}
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), scope)
    assert scope["row"].as_dict() == {"name": "Ada", "age": 37}
