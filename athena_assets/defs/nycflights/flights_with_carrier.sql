-- Every flight that left New York in 2013, with the name of its carrier.
SELECT
    f.time_hour,
    f.origin,
    f.dest,
    f.carrier,
    a.name AS carrier_name,
    f.flight,
    f.tailnum,
    f.dep_delay,
    f.arr_delay,
    f.air_time,
    f.distance
FROM flights AS f
LEFT JOIN airlines AS a ON a.carrier = f.carrier
