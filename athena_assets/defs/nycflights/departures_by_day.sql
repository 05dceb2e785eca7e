-- Every flight that was to leave New York on the partition's day.
SELECT
    origin,
    sched_dep_time,
    dep_time,
    dep_delay,
    carrier,
    flight,
    tailnum,
    dest
FROM flights
WHERE year = year(CAST(${partition_start} AS timestamp))
    AND month = month(CAST(${partition_start} AS timestamp))
    AND day = day(CAST(${partition_start} AS timestamp))
