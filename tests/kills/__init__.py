"""Real kills, many a minute: short jobs on one Spark, killed at moments that a seed gives.

``python -m tests.kills --minutes 10 --seed 7`` draws one case after the other: a program, its
settings, and some faults. Each job is killed as its case says, then runs to its end, and what its
sink holds is compared with what must come out of it. Spark's JVM, Kafka and PostgreSQL are reused;
the driver of a job is a process of its own that is forked with everything imported.
"""
