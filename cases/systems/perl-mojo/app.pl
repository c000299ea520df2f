# A small Mojolicious application. The environment variable APP selects what a request does; see
# system.toml.
use strict;
use warnings;
use Mojo::IOLoop;
use Mojo::Promise;
use Mojolicious::Lite;
use Time::HiRes;

app->log->level('error');

my $turn = Mojo::Promise->resolve;

my %handlers = (
    'hello' => sub { Mojo::Promise->resolve },
    'sleep' => sub { Mojo::Promise->timer(0.02) },
    'blocking-sleep' => sub {
        Time::HiRes::sleep(0.02);
        return Mojo::Promise->resolve;
    },
    # A chain of promises lets one request sleep at a time.
    'turns' => sub {
        return $turn = $turn->then(sub { Mojo::Promise->timer(0.01) });
    },
);
my $work = $handlers{ $ENV{APP} };

get '/' => sub {
    my $c = shift;
    $c->render_later;
    $work->()->then(sub { $c->render(text => 'Hello World', format => 'txt') })
        ->catch(sub { $c->reply->exception(shift) });
};

app->start;
