package aci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/contiv/netplugin/v2/internal/model"
)

// errSessionEnded says that the APIC does not know the session any more.
var errSessionEnded = errors.New("the session has ended")

// Limits of what an APIC may answer.
const (
	maxAnswer  = 64 << 20 // bytes
	maxObjects = 200_000  // in one: an APIC by itself refuses to tell more than half of that
	maxText    = 300      // bytes of what it says, in errors
)

// mo is a managed object on the wire.
type mo struct {
	Attributes map[string]string `json:"attributes"`
	Children   []map[string]mo   `json:"children,omitempty"`
}

// named is a managed object of an answer.
type named struct {
	class string
	mo
}

// session is a login to one of several APICs. It is for one goroutine.
type session struct {
	cfg     APICConfig
	client  *http.Client
	at      int // of cfg.URLs
	token   string
	renewAt time.Time // before it ends for being idle
	endAt   time.Time // it ends whatever is done
}

func newSession(cfg APICConfig) *session {
	return &session{cfg: cfg, client: &http.Client{
		Transport: cfg.Transport,
		Timeout:   cfg.Timeout,
		// The password goes to the configured addresses only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// request makes a request within a session that lasts, which it begins if there is
// none. Errors are errSessionEnded, of kind model.ErrInvalid when the APIC refuses, or of
// kind model.ErrUnavailable.
func (s *session) request(ctx context.Context, method, path string, body any) ([]named, error) {
	if err := s.ensureSession(ctx); err != nil {
		return nil, err
	}
	out, err := s.send(ctx, method, path, body)
	switch {
	case errors.Is(err, errSessionEnded):
		s.token = ""
	case errors.Is(err, model.ErrUnavailable) && len(s.cfg.URLs) > 1: // another one may be well
		s.token, s.at = "", (s.at+1)%len(s.cfg.URLs)
	}
	return out, err
}

// ensureSession makes the session one that has not ended.
func (s *session) ensureSession(ctx context.Context) error {
	now := s.cfg.now()
	switch {
	case s.token != "" && now.Before(s.renewAt):
		return nil
	case s.token != "" && now.Before(s.endAt):
		answer, err := s.send(ctx, http.MethodGet, "/api/aaaRefresh.json", nil)
		if err == nil && s.begin(answer, false) == nil {
			return nil
		}
	}
	s.token = ""
	var login mo
	login.Attributes = map[string]string{"name": s.cfg.User, "pwd": s.cfg.Password}
	answer, err := s.send(ctx, http.MethodPost, "/api/aaaLogin.json", map[string]mo{"aaaUser": login})
	if err != nil {
		s.at = (s.at + 1) % len(s.cfg.URLs)
		if errors.Is(err, errSessionEnded) {
			err = model.Errorf(model.ErrInvalid, "the APIC refuses to log user %s in", s.cfg.User)
		}
		return err
	}
	return s.begin(answer, true)
}

// begin takes what a login or a refresh was answered.
func (s *session) begin(answer []named, login bool) error {
	if len(answer) != 1 || answer[0].class != "aaaLogin" || answer[0].Attributes["token"] == "" {
		return malformedResponse("a login without a token")
	}
	a := answer[0].Attributes
	idle, err := strconv.ParseUint(a["refreshTimeoutSeconds"], 10, 31)
	if err != nil || idle == 0 {
		return malformedResponse("a login that lasts " + s.errorText(strconv.Quote(a["refreshTimeoutSeconds"])) + " seconds")
	}
	now := s.cfg.now()
	s.token = a["token"]
	s.renewAt = now.Add(time.Duration(idle) * time.Second / 2)
	if login {
		s.endAt = now.Add(24 * time.Hour) // the APIC's default
		if most, err := strconv.ParseUint(a["maximumLifetimeSeconds"], 10, 31); err == nil && most > 0 {
			s.endAt = now.Add(time.Duration(most) * time.Second / 10 * 9)
		}
	}
	return nil
}

// end logs out; what the APIC says to that changes nothing.
func (s *session) end(ctx context.Context) {
	if s.token == "" {
		return
	}
	body := map[string]mo{"aaaUser": {Attributes: map[string]string{"name": s.cfg.User}}}
	_, _ = s.send(ctx, http.MethodPost, "/api/aaaLogout.json", body) // it ends by itself otherwise
	s.token = ""
}

// send makes one request.
func (s *session) send(ctx context.Context, method, path string, body any) ([]named, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(s.cfg.URLs[s.at], "/")+path, in)
	if err != nil {
		return nil, model.Errorf(model.ErrInvalid, "the APIC's URL: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		req.AddCookie(&http.Cookie{Name: "APIC-cookie", Value: s.token})
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "the APIC does not answer: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "the APIC's answer was interrupted: %w", err)
	}
	if len(data) > maxAnswer {
		return nil, malformedResponse("more than " + strconv.Itoa(maxAnswer) + " bytes")
	}
	out, err := parse(data, s.errorText)
	switch code := resp.StatusCode; {
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		text, _ := refusal(out)
		return nil, fmt.Errorf("%w: %s: %s", errSessionEnded, s.errorText(resp.Status), s.errorText(text))
	case code == http.StatusOK && err != nil:
		return nil, err
	case code == http.StatusOK:
		if text, ok := refusal(out); ok {
			return nil, model.Errorf(model.ErrInvalid, "the APIC refuses: %s", s.errorText(text))
		}
		return out, nil
	case code == http.StatusBadRequest && err == nil:
		if text, ok := refusal(out); ok {
			return nil, model.Errorf(model.ErrInvalid, "the APIC refuses: %s", s.errorText(text))
		}
		return nil, malformedResponse("a refusal without a reason")
	default:
		return nil, model.Errorf(model.ErrUnavailable, "the APIC answers %s", s.errorText(resp.Status))
	}
}

// errorText is the part of an APIC's text that people may see: it may repeat the password.
func (s *session) errorText(text string) string {
	return clip(strings.ReplaceAll(text, s.cfg.Password, "(password)"), maxText)
}

// clip is a text of others as terminals and the store take it, of so many bytes at most.
func clip(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func malformedResponse(what string) error {
	return model.Errorf(model.ErrUnavailable, "the APIC's answer cannot be read: %s", what)
}

// objects are those of an answer. They are read one after the other, since an empty one
// takes many times more memory than its text.
type objects []map[string]mo

// UnmarshalJSON is json.Unmarshaler's.
func (o *objects) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if begin, err := d.Token(); err != nil || begin == nil {
		return err // null
	} else if begin != json.Delim('[') {
		return errors.New("no list")
	}
	for *o = (objects{}); d.More(); {
		if len(*o) == maxObjects {
			return errTooManyObjects
		}
		var item map[string]mo
		if err := d.Decode(&item); err != nil {
			return err
		}
		*o = append(*o, item)
	}
	return nil
}

var errTooManyObjects = errors.New("too many objects")

// parse reads the one form of all answers; said is the part that may be shown.
func parse(data []byte, said func(string) string) ([]named, error) {
	var answer struct {
		Total  any     `json:"totalCount"`
		Imdata objects `json:"imdata"`
	}
	switch err := json.Unmarshal(data, &answer); {
	case errors.Is(err, errTooManyObjects):
		return nil, malformedResponse("more than " + strconv.Itoa(maxObjects) + " objects")
	case err != nil:
		return nil, malformedResponse("no JSON of objects")
	}
	if answer.Imdata == nil {
		return nil, malformedResponse("no imdata")
	}
	out := make([]named, 0, len(answer.Imdata))
	for _, item := range answer.Imdata {
		for class, o := range item {
			out = append(out, named{class, o})
		}
	}
	if _, refused := refusal(out); !refused && fmt.Sprint(answer.Total) != strconv.Itoa(len(out)) {
		return nil, malformedResponse(fmt.Sprintf("%d objects, said to be %s", len(out), clip(said(fmt.Sprint(answer.Total)), 20)))
	}
	return out, nil
}

// refusal returns the text of an answer that is an error.
func refusal(out []named) (string, bool) {
	for _, o := range out {
		if o.class == "error" {
			return o.Attributes["text"] + " (code " + o.Attributes["code"] + ")", true
		}
	}
	return "", false
}

// moPath is the URL's path of an object.
func moPath(dn string) string { return (&url.URL{Path: "/api/mo/" + dn + ".json"}).EscapedPath() }
