CREATE FUNCTION slow_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A transaction-level lock would be held until the commit, and so during a round trip to the
    -- client.
    PERFORM pg_advisory_lock(1);
    PERFORM pg_sleep(current_setting('bars.row_ms')::float8 / 1000);
    PERFORM pg_advisory_unlock(1);
    RETURN NEW;
EXCEPTION WHEN query_canceled OR OTHERS THEN
    PERFORM pg_advisory_unlock_all();
    RAISE;
END $$;

CREATE FUNCTION slow_table() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'public.bar' AND object_type = 'table') THEN
        CREATE TRIGGER slow_row BEFORE INSERT ON bar FOR EACH ROW EXECUTE FUNCTION slow_row();
    END IF;
END $$;

CREATE EVENT TRIGGER slow_table ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION slow_table();

