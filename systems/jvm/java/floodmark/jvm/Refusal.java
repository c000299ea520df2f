package floodmark.jvm;

/** Response to a refused request: a status and one line of JSON. */
public enum Refusal {
    NOT_JSON(400, "the body is not the JSON that this path takes"),
    NO_SCORE(400, "the body needs a score that is a finite number, like {\\\"score\\\": 10}"),
    NO_NAME(400, "the body needs a name of 1 to 255 characters, like {\\\"name\\\": \\\"Bar\\\"}"),
    NO_PATH(404, "no such path"),
    METHOD(405, "method not allowed; the header Allow lists the allowed methods"),
    TOO_LONG(413, "body too long; at most 65536 bytes"),
    TYPE(415, "the content type must be application/json"),
    FAILED(500, "the server failed; see the server's log"),
    NOT_STORED(503, "the store did not respond and the write is not confirmed; try again later");

    /** Maximum size of a request body in bytes. */
    public static final int LONGEST_BODY = 64 * 1024;

    /** Value of Retry-After in seconds. */
    public static final int RETRY_AFTER = 1;

    private final int status;
    private final String json;

    Refusal(int status, String reason) {
        this.status = status;
        this.json = "{\"error\": \"" + reason + "\"}";
    }

    public int status() {
        return status;
    }

    public String json() {
        return json;
    }
}
