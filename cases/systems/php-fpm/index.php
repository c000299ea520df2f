<?php
// A small PHP application. The environment variable APP selects what a request does; see system.toml.

function store(): PgSql\Connection
{
    // A persistent connection: one per PHP-FPM process.
    [$host, $port] = explode(':', getenv('STORE'));
    return pg_pconnect("host=$host port=$port user=bars dbname=bars");
}

function count_visit(int $row): void
{
    $store = store();
    pg_query($store, 'BEGIN');
    pg_query_params($store, 'UPDATE counters SET hits = hits + 1 WHERE id = $1', [$row]);
    usleep(10_000);
    pg_query($store, 'COMMIT');
}

function render(): string
{
    require_once '/usr/share/php/Twig/autoload.php';
    $templates = new Twig\Loader\ArrayLoader(['hello' => 'Hello {{ name|capitalize }}']);
    return (new Twig\Environment($templates))->render('hello', ['name' => 'world']);
}

function log_line(string $line, bool $durable): void
{
    // FILE_APPEND | LOCK_EX as in many small loggers, and fsync for an audit log.
    $log = fopen(getenv('RUN') . '/audit.log', 'a');
    flock($log, LOCK_EX);
    fwrite($log, date(DATE_ATOM) . " $line\n");
    fflush($log);
    if ($durable) {
        fsync($log);
    }
    fclose($log);
}

$body = 'Hello World';
switch (getenv('APP')) {
    case 'hello':
        break;
    case 'sleep':
        usleep(50_000);
        break;
    case 'session':
    case 'session-read':
        // All requests belong to one visitor. PHP locks the session until the request ends, unless
        // the session is read and closed at once.
        session_id('visitor');
        session_start(['read_and_close' => getenv('APP') === 'session-read']);
        usleep(10_000);
        break;
    case 'log':
    case 'durable-log':
        foreach (['request GET /', 'user 1 is allowed', 'response 200'] as $line) {
            log_line($line, getenv('APP') === 'durable-log');
        }
        break;
    case 'template':
        $body = render();
        break;
    case 'count-one':
        count_visit(1);
        break;
    case 'count-many':
        count_visit(random_int(1, 1000));
        break;
}
header('Content-Type: text/plain');
header('Content-Length: ' . strlen($body));
echo $body;
