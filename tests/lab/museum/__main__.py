"""Run every exhibit, and write what stopped it into `plugins/dpbench_lab/museum`."""

from __future__ import annotations

from dpbench_lab.museum.matrix import make_exhibit_record, write_museum_record
from dpbench_lab.museum.record import ExhibitRecord
from dpbench_lab.museum.tour import EXHIBITS


def main() -> None:
    """Write the records."""
    found: list[ExhibitRecord] = []
    for exhibit in EXHIBITS:
        found.append(make_exhibit_record(exhibit, exhibit.visit()))
        print(f"{exhibit.name}: {', '.join(found[-1].stopped) or 'NOTHING'}", flush=True)
    write_museum_record(found)


if __name__ == "__main__":
    main()
