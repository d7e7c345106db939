from enum import StrEnum

from tidegate.checkpoint.savepoints import new_savepoint
from tidegate.core.modes import SavepointFormat


class Place(StrEnum):
    SAVEPOINTS = "/savepoints"


def test_its_directory_is_plain_text_which_every_slot_can_read():
    directory = new_savepoint(Place.SAVEPOINTS, "0123456789", SavepointFormat.NATIVE).directory
    assert (type(directory), directory) == (str, "/savepoints")
