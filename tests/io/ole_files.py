"""A writer of OLE (compound) files, of version 3, as [MS-CFB] describes them; only for tests."""

from __future__ import annotations

import itertools
import struct
from typing import Any

_SECTOR, _MINI, _CUTOFF = 512, 64, 4096
_END, _FREE, _FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD


def ole_bytes(streams: dict[str, bytes], scattered: bool = False) -> bytes:
    """Return an OLE file with streams by their paths (``"ImageInfo/ImageWidth"``).

    `scattered`: exchange the sectors of streams, so that none lies in one piece.
    """
    entries: list[dict[str, Any]] = [{"name": "Root Entry", "kind": 5, "children": []}]
    numbers = {"": 0}
    for path, content in streams.items():
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            key = "/".join(parts[:depth])
            if key in numbers:
                continue
            is_stream = depth == len(parts)
            numbers[key] = len(entries)
            entries[numbers["/".join(parts[: depth - 1])]]["children"].append(len(entries))
            entries.append({"name": parts[depth - 1], "kind": 2 if is_stream else 1, "children": [],
                            "content": content if is_stream else b""})  # fmt: skip
    sectors: list[bytes] = []
    fat: list[int] = []
    mini, mini_fat = b"", []

    def put(content: bytes) -> int:
        """Add a chain of sectors, and return its first."""
        pieces = [content[i : i + _SECTOR].ljust(_SECTOR, b"\0")
                  for i in range(0, len(content), _SECTOR)]  # fmt: skip
        places = list(range(len(sectors), len(sectors) + len(pieces)))
        order = places[::-1] if scattered else places
        sectors.extend(pieces)
        fat.extend([0] * len(pieces))
        for place, piece in zip(order, pieces, strict=True):
            sectors[place] = piece
        for place, following in zip(order, [*order[1:], _END], strict=True):
            fat[place] = following
        return order[0] if order else _END

    for entry in entries[1:]:
        content = entry.get("content", b"")
        if entry["kind"] != 2:
            entry["start"] = 0
        elif len(content) >= _CUTOFF:
            entry["start"] = put(content)
        else:
            count = -(-len(content) // _MINI)
            entry["start"] = len(mini_fat) if count else _END
            mini_fat += [*range(len(mini_fat) + 1, len(mini_fat) + count), _END][:count]
            mini += content.ljust(count * _MINI, b"\0")
    entries[0].update(start=put(mini) if mini else _END, content=mini)
    mini_start = put(struct.pack(f"<{len(mini_fat)}I", *mini_fat).ljust(
        -(-4 * len(mini_fat) // _SECTOR) * _SECTOR, b"\xff")) if mini_fat else _END  # fmt: skip
    mini_count = -(-4 * len(mini_fat) // _SECTOR)
    # siblings as a chain to the right, which is a valid though unbalanced tree
    right = [_FREE] * len(entries)
    child = [_FREE] * len(entries)
    for number, entry in enumerate(entries):
        order = sorted(entry["children"], key=lambda n: (len(entries[n]["name"]),
                                                         entries[n]["name"].upper()))  # fmt: skip
        if order:
            child[number] = order[0]
            for before, after in itertools.pairwise(order):
                right[before] = after
    table = b""
    for number, entry in enumerate(entries):
        name = (entry["name"] + "\0").encode("utf-16-le")
        table += name.ljust(64, b"\0") + struct.pack(
            "<HBBIII16sIQQIQ", len(name), entry["kind"], 1, _FREE, right[number], child[number],
            bytes(16), 0, 0, 0, entry["start"], len(entry.get("content", b"")),
        )  # fmt: skip
    table = table.ljust(-(-len(table) // _SECTOR) * _SECTOR, b"\0")
    was, scattered = scattered, False
    table_start = put(table)
    scattered = was
    fat_count = 1
    while (len(fat) + fat_count) * 4 > fat_count * _SECTOR:
        fat_count += 1
    fat_places = list(range(len(fat), len(fat) + fat_count))
    fat += [_FAT] * fat_count
    packed = struct.pack(f"<{len(fat)}I", *fat).ljust(fat_count * _SECTOR, b"\xff")
    sectors += [packed[i : i + _SECTOR] for i in range(0, len(packed), _SECTOR)]
    assert fat_count <= 109
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack(
        "<HHHHH6sIIIIIIIII", 0x3E, 3, 0xFFFE, 9, 6, bytes(6), 0, fat_count, table_start, 0, _CUTOFF,
        mini_start, mini_count, _END, 0,
    )  # fmt: skip
    header += struct.pack("<109I", *[*fat_places, *[_FREE] * (109 - fat_count)])
    return header + b"".join(sectors)
