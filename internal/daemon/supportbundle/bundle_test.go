package supportbundle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// TestNewestLinesRemain: the newest lines are kept, whole, and all is handed on.
func TestNewestLinesRemain(t *testing.T) {
	var next bytes.Buffer
	r := NewRing(&next, 32)
	write := func(s string) {
		t.Helper()
		if n, err := r.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("write %q: %d, %v", s, n, err)
		}
	}
	write("first line\n")
	if got := string(r.Bytes()); got != "first line\n" {
		t.Errorf("got %q", got)
	}
	for i := range 10 {
		write(fmt.Sprintf("line number %d\n", i))
	}
	if got := string(r.Bytes()); got != "line number 8\nline number 9\n" {
		t.Errorf("got %q", got)
	}
	write(strings.Repeat("x", 100) + "\nend\n")
	if got := string(r.Bytes()); got != "end\n" {
		t.Errorf("got %q", got)
	}
	if got := next.String(); !strings.HasPrefix(got, "first line\nline number 0\n") || !strings.HasSuffix(got, "x\nend\n") {
		t.Errorf("handed on %q", got)
	}
}

// The secrets that are planted everywhere: none may be found again.
const planted = "pLaNtEd"

func secrets() []string {
	key := "-----BEGIN EC PRIVATE KEY-----\nMHc" + planted + "CAQEE\n-----END EC PRIVATE KEY-----"
	return []string{
		"Authorization: Bearer " + planted + "abcdef0123",
		"authorization: Basic " + planted + "YWJj=",
		`{"token":"` + planted + `","name":"web"}`,
		`{"password": "a\"` + planted + `"}`,
		`msg="started" consul-token=` + planted + ` host=h1`,
		`err="dial https://root:` + planted + `@10.0.0.1:2379: refused"`,
		"http://" + planted + "@10.0.0.1/",
		"--etcd-password " + "= '" + planted + " with blanks'",
		"ETCD_PASSWORD=" + planted,
		"client-key-data: " + planted,
		"Cookie: session=" + planted,
		`{"aaaUser":{"attributes":{"name":"admin","pwd":"` + planted + `"}}}`,
		`args="netplugin --join 10.0.0.1:9005 --token contiv-join-eyJhIjpb` + planted + `"`,
		key,
		strings.ReplaceAll(key, "\n", `\n`),
		"-----BEGIN PRIVATE KEY-----\n" + planted, // cut off
		"id eyJhbGciOi" + planted + ".eyJzdWIi" + planted + ".c2ln" + planted,
		`{"secret":{"x":1},"clientSecret":"` + planted + `"}`,
		`"line=\"token=\\\"x\\\" password=` + planted + `\""`,
	}
}

// TestNoSecretIsPacked: no secret stays, by its looks or because a file has it; what is none does.
func TestNoSecretIsPacked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("k9f8-"+planted+"-77\n\nab\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := NewRedactor(file, "", filepath.Join(t.TempDir(), "nosuch"))
	for _, s := range append(secrets(), "the bearer says k9f8-"+planted+"-77.") {
		if got := string(r.Redact([]byte("before\n" + s + "\nafter\n"))); strings.Contains(got, planted) || !strings.HasPrefix(got, "before\n") {
			t.Errorf("%q stays %q", s, got)
		}
	}
	if got := string(r.Redact([]byte("--token contiv-QW3RTYU2OP-ABCDEFGHIJKLMNOPQRSTUVWX23"))); strings.Contains(got, "ABCDEFGH") {
		t.Errorf("a token stays %q", got)
	}
	for _, s := range []string{
		"contiv-netmaster.service", "contiv-join", `{"name":"web","address":"10.1.1.1","port":80}`, "contiv_netmaster_token_required 1", "token-file=/etc/contiv/token host=h1", "about", "msg=\"a token is missing\" code=401",
		`{"tokenRequired":false,"password":""}`, "https://10.0.0.1:2379/health", "nw_src=10.1.1.1,actions=drop", "mail root@example.com",
	} {
		if got := string(r.Redact([]byte(s))); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

// files unpacks an archive.
func files(t *testing.T, r io.Reader) (out map[string]string, last string) {
	t.Helper()
	out = map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out, last
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name], last = string(text), h.Name
	}
}

// TestManifestListsMissingParts: each part is packed without secrets and within its size limit. The manifest
// comes last and lists the parts that failed, panicked or were left out.
func TestManifestListsMissingParts(t *testing.T) {
	all := strings.Join(secrets(), "\n")
	ring := NewRing(io.Discard, 1<<16)
	_, _ = ring.Write([]byte("log\n" + all + "\nlog ends\n"))
	s := &Support{Version: "2.0", Log: ring, Dirs: map[string]string{"state": t.TempDir(), "lost": "/nosuch/dir"}, Certificates: func() []api.Certificate {
		return []api.Certificate{{Use: "its own", Subject: "CN=h1", Ends: time.Unix(0, 0)}}
	}}
	answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(r.URL.Path + "\n" + all))
	})
	var b bytes.Buffer
	err := s.Pack(t.Context(), "host h1", []Part{
		{Name: "secrets.txt", Read: func(context.Context) ([]byte, error) { return []byte(all), nil }},
		Served("good.txt", answers, "/good"), Served("bad.txt", answers, "/bad"),
		{Name: "head.txt", Limit: 4, Read: func(context.Context) ([]byte, error) { return []byte("0123456789"), nil }},
		{Name: "tail.txt", Limit: 4, Tail: true, Read: func(context.Context) ([]byte, error) { return []byte("0123456789"), nil }},
		{Name: "cut.txt", Limit: len("password=" + planted[:4]), Read: func(context.Context) ([]byte, error) { return []byte("password=" + planted), nil }},
		{Name: "lost.txt", Read: func(context.Context) ([]byte, error) { return nil, errors.New("no token=" + planted) }},
		{Name: "panics.txt", Read: func(context.Context) ([]byte, error) { panic("oh") }},
	}, &b)
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.Index(b.String(), planted[:4]); i >= 0 {
		t.Errorf("the archive has a secret: %q", b.String()[max(0, i-60):i+20])
	}
	got, last := files(t, &b)
	var m api.BundleManifest
	if err := json.Unmarshal([]byte(got[ManifestName]), &m); err != nil || last != ManifestName || m.Of != "host h1" || m.Version != "2.0" {
		t.Fatalf("manifest %+v, the last file is %s: %v", m, last, err)
	}
	told := map[string]api.BundlePart{}
	for _, p := range m.Parts {
		told[p.Name] = p
		if int64(len(got[p.Name])) != p.Bytes {
			t.Errorf("%s has %d bytes, told %d", p.Name, len(got[p.Name]), p.Bytes)
		}
	}
	if got["head.txt"] != "0123" || got["tail.txt"] != "6789" || told["head.txt"].LeftOut != 6 || told["tail.txt"].LeftOut != 6 {
		t.Errorf("head %q, tail %q: %+v", got["head.txt"], got["tail.txt"], told)
	}
	if !strings.HasPrefix(got["good.txt"], "/good\n") || told["good.txt"].Error != "" || !strings.HasPrefix(got["bad.txt"], "/bad\n") || !strings.Contains(told["bad.txt"].Error, "503") {
		t.Errorf("what is served: %+v", told)
	}
	if told["lost.txt"].Error == "" || !strings.Contains(told["panics.txt"].Error, "oh") {
		t.Errorf("what fails: %+v", told)
	}
	if !strings.HasPrefix(got["log.txt"], "log\n") || !strings.HasSuffix(got["log.txt"], "log ends\n") || !strings.Contains(got["goroutines.txt"], "TestManifestListsMissingParts") {
		t.Errorf("log %q", got["log.txt"])
	}
	var machine api.Machine
	if err := json.Unmarshal([]byte(got["machine.json"]), &machine); err != nil || len(machine.Certificates) != 1 || len(machine.Disks) != 2 || machine.Disks[0].Error == "" || machine.Disks[1].Size == 0 {
		t.Errorf("machine %+v: %v", machine, err)
	}
}
