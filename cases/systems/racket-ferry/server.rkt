#lang racket/base
;; A ferry service on Racket's web server. The environment variable HANDLER selects the handler; see
;; system.toml.
(require db
         racket/async-channel
         racket/string
         web-server/http
         web-server/servlet-dispatch
         web-server/web-server)

(define crossings 10000)

(define (option name)
  (getenv name))

(define size (string->number (option "SIZE")))

;; Renders a table of crossings.
(define (page)
  (string-append* (for/list ([i 500])
                    (format "<tr><td>~a<td>ferry ~a\n" i (modulo (* i 7919) 101)))))

(define (permits)
  (define free (make-semaphore size))
  (lambda () (call-with-semaphore free (lambda () (sleep 0.02)))))

(define (turns)
  (define mutex (make-semaphore 1))
  (lambda () (call-with-semaphore mutex (lambda () (sleep 0.01)))))

;; Creates the table of crossings, and returns a channel of connections to PostgreSQL.
(define (open-pool)
  (define address (string-split (option "STORE") ":"))
  (define free (make-async-channel))
  (for ([_ size])
    (async-channel-put free
                       (postgresql-connect #:server (car address)
                                           #:port (string->number (cadr address))
                                           #:user "bars"
                                           #:database "bars")))
  (define store (async-channel-get free))
  (query-exec store
              (format "CREATE TABLE crossings AS SELECT id, 0 AS seats FROM generate_series(1, ~a) AS id"
                      crossings))
  (query-exec store "ALTER TABLE crossings ADD PRIMARY KEY (id)")
  (async-channel-put free store)
  free)

;; Returns a handler that runs a query on a connection of the pool.
(define (with-store work)
  (define free (open-pool))
  (lambda ()
    (define store (async-channel-get free))
    (dynamic-wind void (lambda () (work store)) (lambda () (async-channel-put free store)))))

;; Updates a crossing in a transaction that takes 10 ms.
(define (book store crossing)
  (call-with-transaction
   store
   (lambda ()
     (query-exec store "UPDATE crossings SET seats = seats + 1 WHERE id = $1" crossing)
     (sleep 0.01))))

(define work
  (case (option "HANDLER")
    [("hello") void]
    [("sleep") (lambda () (sleep 0.02))]
    [("page") page]
    [("permits") (permits)]
    [("turns") (turns)]
    [("report") (with-store (lambda (store) (query-exec store "SELECT pg_sleep(0.02)")))]
    [("book") (with-store (lambda (store) (book store (add1 (random crossings)))))]
    [("book-one") (with-store (lambda (store) (book store 1)))]))

(define headers
  (if (equal? (option "CONNECTION") "close") (list (header #"Connection" #"close")) '()))

(define (start request)
  (work)
  (response/full 200 #"OK" (current-seconds) #"text/plain" headers (list #"Hello World")))

(define stop
  (serve #:dispatch (dispatch/servlet start)
         #:listen-ip (option "HOST")
         #:port (string->number (option "PORT"))))
(with-handlers ([exn:break? void])
  (do-not-return))
(stop)
