;;; A museum on Hunchentoot. The environment variable HANDLER selects the handler; see system.toml.
(require :asdf)
(require :sb-posix)
(asdf:load-system :hunchentoot)

(defpackage :museum
  (:use :cl)
  (:export #:main))
(in-package :museum)

(defun option (name)
  (uiop:getenv name))

(defun count-primes ()
  "Uses CPU time."
  (loop for number of-type fixnum from 2 below 20000
        count (loop for divisor of-type fixnum from 2
                    while (<= (* divisor divisor) number)
                    never (zerop (rem number divisor)))))

(defun journal (durable)
  "Returns a handler that appends a line to the journal while it holds a mutex."
  (let ((lock (bt:make-lock))
        (file (open (option "JOURNAL") :direction :output :if-exists :append :if-does-not-exist :create)))
    (lambda ()
      (bt:with-lock-held (lock)
        (write-line "ticket sold" file)
        (finish-output file)
        (when durable
          (sb-posix:fsync (sb-sys:fd-stream-fd file)))))))

(defun turns ()
  "Returns a handler that sleeps for 10 ms while it holds a mutex."
  (let ((lock (bt:make-lock)))
    (lambda ()
      (bt:with-lock-held (lock)
        (sleep 0.01)))))

(defun permits (count)
  "Returns a handler that sleeps for 10 ms while it holds a permit of a semaphore."
  (let ((permits (sb-thread:make-semaphore :count count)))
    (lambda ()
      (sb-thread:wait-on-semaphore permits)
      (unwind-protect (sleep 0.01)
        (sb-thread:signal-semaphore permits)))))

(defun handler (name)
  (cond ((string= name "hello") (constantly nil))
        ((string= name "sleep") (lambda () (sleep 0.01)))
        ((string= name "turns") (turns))
        ((string= name "permits") (permits (parse-integer (option "PERMITS"))))
        ((string= name "count") #'count-primes)
        ((string= name "journal") (journal nil))
        ((string= name "durable-journal") (journal t))
        (t (error "unknown handler ~a" name))))

(defun main ()
  (sb-sys:enable-interrupt sb-unix:sigterm (lambda (&rest arguments)
                                             (declare (ignore arguments))
                                             (sb-ext:exit :code 0 :abort t)))
  (let ((work (handler (option "HANDLER"))))
    (push (lambda (request)
            (declare (ignore request))
            (lambda ()
              (funcall work)
              (setf (hunchentoot:content-type*) "text/plain")
              "Hello World"))
          hunchentoot:*dispatch-table*)
    (hunchentoot:start
     (make-instance 'hunchentoot:easy-acceptor
                    :address (option "HOST")
                    :port (parse-integer (option "PORT"))
                    :persistent-connections-p (string= (option "CONNECTION") "keep-alive")
                    :access-log-destination (when (string= (option "LOG") "on") *standard-output*)))
    (loop (sleep 3600))))

(sb-ext:save-lisp-and-die "target/museum" :executable t :toplevel #'main)
