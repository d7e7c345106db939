"""From CSV files to CSV files in columns: no Python object per record."""

import tempfile
from pathlib import Path

import polars as pl

from tidegate import CsvEncoding, CsvFormat, FileSink, FileSource, StreamExecutionEnvironment, Types

SALES = """city,product,pieces,price
Berlin,tea,3,2.5
Paris,tea,1,3.0
Berlin,coffee,2,4.0
Rome,tea,5,2.0
Paris,coffee,4,4.5
Berlin,tea,1,2.5
"""
SALE = Types.ROW_NAMED(
    ["city", "product", "pieces", "price"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.DOUBLE()],
)
REVENUE = Types.ROW_NAMED(["city", "revenue"], [Types.STRING(), Types.DOUBLE()])


def revenue(sales: pl.DataFrame) -> pl.DataFrame:
    """A whole batch at once."""
    return sales.select("city", revenue=pl.col("pieces") * pl.col("price"))


def report(sales: Path, directory: Path) -> str:
    """The running revenue of every city, a line for every sale."""
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(1)
        (
            env.from_source(FileSource(str(sales), CsvFormat(SALE)))
            .map_batches(revenue, REVENUE)
            .key_by("city")
            .sum("revenue")
            .sink_to(FileSink(str(directory), CsvEncoding()))
        )
        env.execute("revenue by city")
    return "".join(part.read_text() for part in sorted(directory.glob("part-*")))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sales = Path(folder) / "sales.csv"
        sales.write_text(SALES)
        print(report(sales, Path(folder) / "report"), end="")


if __name__ == "__main__":
    main()
