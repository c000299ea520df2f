# A small PSGI application. The environment variable APP selects what a request does; see system.toml.
use strict;
use warnings;
use Fcntl qw(:flock);
use IO::Handle;
use Time::HiRes qw(sleep);

my $rows = 10_000;
my $store;

# Keeps one connection per process.
sub store {
    require DBI;
    my ($host, $port) = split /:/, $ENV{STORE};
    $store //= DBI->connect("dbi:Pg:host=$host;port=$port;dbname=bars", 'bars', '', { RaiseError => 1 });
    return $store;
}

sub create {
    my $store = store();
    $store->do("CREATE TABLE orders AS SELECT id, 0 AS amount FROM generate_series(1, $rows) AS id");
    $store->do('ALTER TABLE orders ADD PRIMARY KEY (id)');
    $store->do('VACUUM ANALYZE orders');
}

sub pay {
    my ($id) = @_;
    my $store = store();
    $store->begin_work;
    $store->do('UPDATE orders SET amount = amount + 1 WHERE id = ?', undef, $id);
    sleep 0.01;
    $store->commit;
}

sub record {
    my ($durable) = @_;
    open my $journal, '>>', "$ENV{RUN}/journal" or die $!;
    flock $journal, LOCK_EX or die $!;
    print $journal time, " order received\n";
    $journal->flush;
    $journal->sync if $durable;
    close $journal;
}

sub render {
    my $page = join '', map { sprintf '<tr><td>%d<td>%s<td>%.2f', $_, "customer $_", $_ * 1.25 } 1 .. 2000;
    die 'too short' if length $page < 1000;
}

my %handlers = (
    'hello'           => sub { },
    'sleep'           => sub { sleep 0.05 },
    'page'            => \&render,
    'journal'         => sub { record(0) },
    'durable-journal' => sub { record(1) },
    'pay'             => sub { pay(1 + int rand $rows) },
    'pay-one'         => sub { pay(1) },
);
my $work = $handlers{ $ENV{APP} };

# The application is loaded before the workers start, so they must not share this connection.
if ($ENV{STORE} ne 'none') {
    create();
    $store->disconnect;
    $store = undef;
}

sub {
    $work->();
    return [200, ['Content-Type' => 'text/plain', 'Content-Length' => 11], ['Hello World']];
};
