"""Running aggregations, on columns or by record."""
