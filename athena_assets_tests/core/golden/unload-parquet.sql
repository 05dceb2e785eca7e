-- athena_assets {"slot": "s3://lake/marts/daily/", "fence": 7, "attempt": 1}
UNLOAD (
SELECT 'it''s', "Über"
  FROM orders -- the last line is a comment
)
TO 's3://lake/_athena_assets/v1/marts%2Fdaily/staging/00000007-01-00ff/'
WITH (format = 'PARQUET', compression = 'ZSTD', compression_level = 5)
