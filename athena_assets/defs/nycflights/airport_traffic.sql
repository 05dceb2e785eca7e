-- Where New York flew to: flights and seats offered for each destination.
SELECT
    f.dest AS airport,
    p.name AS airport_name,
    COUNT(*) AS flights,
    COUNT(DISTINCT f.carrier) AS carriers,
    SUM(planes.seats) AS seats,
    MAX(f.distance) AS distance_miles
FROM flights AS f
LEFT JOIN airports AS p ON p.faa = f.dest
LEFT JOIN planes ON planes.tailnum = f.tailnum
GROUP BY f.dest, p.name
