CREATE TABLE bar (id integer PRIMARY KEY, city integer NOT NULL, name text NOT NULL, visits integer NOT NULL);
INSERT INTO bar SELECT id, id / 20, 'Bar ' || id, 0 FROM generate_series(1, 100000) AS id;
CREATE INDEX bar_city ON bar (city);
VACUUM ANALYZE bar;
