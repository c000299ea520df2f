<?php
// Creates the table that the handlers count-one and count-many use.
[$host, $port] = explode(':', getenv('STORE'));
$store = pg_connect("host=$host port=$port user=bars dbname=bars");
pg_query($store, 'CREATE TABLE counters AS SELECT id, 0 AS hits FROM generate_series(1, 1000) AS id');
pg_query($store, 'ALTER TABLE counters ADD PRIMARY KEY (id)');
pg_query($store, 'VACUUM ANALYZE counters');
