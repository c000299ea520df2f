% A railway timetable on SWI-Prolog's HTTP server. The arguments are HOST PORT APP WORKERS
% CONNECTION TICKETS LOG UPSTREAM; see system.toml.
:- use_module(library(http/thread_httpd)).
:- use_module(library(http/http_open)).
:- use_module(library(lists)).
:- use_module(library(settings)).

% The second-to-last argument is the log file. If it is empty, nothing is logged.
:- current_prolog_flag(argv, Arguments),
   (   append(_, ['', _], Arguments)
   ->  true
   ;   use_module(library(http/http_log))
   ).

:- initialization(main, main).

:- dynamic app/1, connection/1, upstream/1.

% Trains run from each station to the next one and to the one after that.
stations(30).

link(From, To, Minutes) :-
    stations(Count),
    member(Step-Minutes, [1-7, 2-12]),
    To is From + Step,
    To =< Count.

% A journey of at most 100 minutes.
journey(Station, Station, Minutes, Minutes).
journey(From, To, Before, Minutes) :-
    link(From, Next, Ride),
    Now is Before + Ride,
    Now =< 100,
    journey(Next, To, Now, Minutes).

handle(hello).
handle(pause) :-
    sleep(0.02).
handle(route) :-
    findall(Minutes, journey(1, 15, 0, Minutes), All),
    min_list(All, _).
handle(reserve) :-
    sleep(0.01).
handle('reserve-locked') :-
    with_mutex(reservations, sleep(0.01)).
handle(ticket) :-
    thread_get_message(tickets, ticket),
    sleep(0.02),
    thread_send_message(tickets, ticket).
handle(weather) :-
    upstream(URL),
    setup_call_cleanup(http_open(URL, In, []), read_string(In, _, "Hello World"), close(In)).

reply(_Request) :-
    app(App),
    handle(App),
    (   connection(close)
    ->  format('Connection: close~n')
    ;   true
    ),
    format('Content-Type: text/plain~n~n'),
    format('Hello World').

main(Arguments) :-
    maplist(value, Arguments, [Host, Port, App, Workers, Connection, Tickets, Log, Upstream]),
    assertz(app(App)),
    assertz(connection(Connection)),
    assertz(upstream(Upstream)),
    message_queue_create(tickets),
    forall(between(1, Tickets, _), thread_send_message(tickets, ticket)),
    (   Log == ''
    ->  true
    ;   set_setting(http:logfile, Log)
    ),
    http_server(reply, [port(Host:Port), workers(Workers), silent(true)]),
    thread_get_message(quit).

value(Text, Number) :-
    atom_number(Text, Number),
    !.
value(Text, Text).
