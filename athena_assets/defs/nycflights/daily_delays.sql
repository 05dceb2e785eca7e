-- One row for each airport and day: how many flights left, how many of them late, and by how much.
-- A flight without a departure time was cancelled.
SELECT
    origin,
    year,
    month,
    day,
    COUNT(*) AS flights,
    COUNT(*) - COUNT(dep_time) AS cancelled,
    SUM(CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END) AS late,
    AVG(CAST(dep_delay AS DOUBLE)) AS mean_delay_minutes,
    MAX(dep_delay) AS worst_delay_minutes
FROM flights
GROUP BY origin, year, month, day
