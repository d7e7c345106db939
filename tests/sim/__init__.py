"""The whole system in one thread: real drivers and slots, everything around them simulated.

Real: `JobMaster` with its coordinator, regions and slot pool; `SlotHost` with its machine, units,
gates, operators and snapshots; `StageTask` and both exchanges; `CheckpointStore` and `Ownership`;
the wire forms of messages and packets. Simulated: time, threads, processes, the network, Spark's
scheduler, the object store, and the system that sinks write to. All chance comes from one seed.
"""
