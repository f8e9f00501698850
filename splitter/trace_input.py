"""The standard input of a script that nobody answers: a terminal where the user has one, since scripts ask it for its width (`stty size`).

    terminal()  in the parent  ->  (24, 80), or None without one        unanswered((24, 80))  in the child  ->  a file descriptor

Whoever reads from it is at the end of the file at once.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios

END = b"\x04"  # Ctrl-D: a read of a line ends there, with nothing in it
READS = 200  # that come to an end; a terminal keeps no more than 4,096 characters


def terminal() -> tuple[int, int] | None:
    """Rows and columns of the terminal that standard input is; None when it is none."""
    try:
        size = os.get_terminal_size(0)
    except OSError:
        return None
    return size.lines, size.columns


def unanswered(size: tuple[int, int] | None) -> int:
    """A descriptor to read from, of a new terminal of this size where one is wanted. It stays open while the process lasts."""
    if size is None:
        return os.open(os.devnull, os.O_RDONLY)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    os.write(ours, END * READS)
    return theirs
