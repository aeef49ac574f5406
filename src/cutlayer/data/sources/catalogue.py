"""All sources of rows that are files, one line each."""

# ruff: noqa: F401, I001 (one line for each, of which the registry is made)

from cutlayer.data.sources.csv import CsvSource
from cutlayer.data.sources.parquet import ParquetSource
from cutlayer.data.sources.npz import NpzSource
from cutlayer.data.sources.sql import SqlSource
from cutlayer.data.sources.excel import ExcelSource
