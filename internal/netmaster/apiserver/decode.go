package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// MaxBody is the largest request body, in bytes: several times what the
// largest group or endpoint needs.
const MaxBody = 1 << 20

// decode reads a request's body as one JSON object into out, and returns it.
func decode(w http.ResponseWriter, r *request, out any) (body []byte, err error) {
	return decodeUpTo(w, r, out, MaxBody)
}

// decodeUpTo is decode with another limit, in bytes.
func decodeUpTo(w http.ResponseWriter, r *request, out any, limit int64) (body []byte, err error) {
	if r.Body == nil {
		return nil, strictjson.BadBody("must not be empty: a JSON object is expected")
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, model.Errorf(errTooLarge, "body: must be at most %d bytes", large.Limit)
		}
		return nil, model.Errorf(model.ErrInvalid, "body: could not be read: %w", err)
	}
	return data, strictjson.Decode(data, out)
}

func clip(b []byte) string {
	if len(b) > 40 {
		return strings.ToValidUTF8(string(b[:40]), "") + "..."
	}
	return string(b)
}

// requireJSON accepts a missing Content-Type and the one that curl -d sends, as
// old clients do, and any JSON one; text/plain, which a page's form can send
// without asking, charsets other than JSON's and compressed bodies are refused.
func requireJSON(r *http.Request) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return model.Errorf(errMediaType, "Content-Encoding %q: bodies are taken uncompressed only", clip([]byte(enc)))
	}
	ct := r.Header.Get("Content-Type")
	if ct == "" {
		return nil
	}
	t, params, err := mime.ParseMediaType(ct)
	if err != nil || t != "application/json" && !strings.HasSuffix(t, "+json") &&
		t != "application/x-www-form-urlencoded" && t != "application/octet-stream" {
		return model.Errorf(errMediaType, "Content-Type %q: must be application/json", ct)
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii":
	default:
		return model.Errorf(errMediaType, "Content-Type %q: bodies are taken in UTF-8 only", ct)
	}
	return nil
}

// checkOwnKey refuses an object whose field key names another one than its other fields.
func checkOwnKey(body []byte, fields string) error {
	text := strictjson.Field(body, "key")
	if text == nil {
		return nil
	}
	var key string
	if err := json.Unmarshal(text, &key); err != nil {
		return strictjson.BadBody("key: %w", err)
	}
	if key == "" || key == fields {
		return nil
	}
	return &model.FieldError{Field: "key", Value: clip([]byte(key)), Want: fmt.Sprintf("must be the key that the other fields build, %q, or be left out", clip([]byte(fields)))}
}

// checkKey refuses a body whose fields do not build the key of the path.
func checkKey(path, fields string) error {
	if path != fields {
		return &model.FieldError{Field: "key", Value: clip([]byte(path)), Want: fmt.Sprintf("must equal the key that the body's fields build, %q", clip([]byte(fields)))}
	}
	return nil
}
