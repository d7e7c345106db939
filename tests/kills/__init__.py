"""Real kills, many a minute: short jobs on one Spark, killed at moments drawn from a seed.

``python -m tests.kills --minutes 10 --seed 7`` draws one case after the other: a program, its
settings, and some faults. Each job is killed according to its case, then runs to its end, and the
contents of its sink are compared with the expected results. Spark's JVM, Kafka and PostgreSQL are
reused; the driver of a job is a separate process, forked with everything imported.
"""
