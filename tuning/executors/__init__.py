"""Where units run: in this process, in worker processes of this machine, on a Dask cluster, on Spark."""
