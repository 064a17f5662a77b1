package membership

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// TestJoinTokenRoundTrips: what a token says comes back; whatever is missing of it, it is none, and
// no error tells what was read.
func TestJoinTokenRoundTrips(t *testing.T) {
	tok := jointoken.New([]string{"10.1.1.1:2378", "[fd00::1]:2378", "host:1"}, Fingerprint{1, 2, 3})
	text := tok.Text()
	got, err := ParseToken(" " + text + "\n")
	if err != nil || got.ID != tok.ID || got.Secret != tok.Secret || got.Authority != tok.Authority || !slices.Equal(got.Addresses, tok.Addresses) {
		t.Errorf("%+v became %+v, %v", tok, got, err)
	}
	for i := range len(text) {
		if _, err := ParseToken(text[:i]); err == nil {
			t.Errorf("the first %d letters are a token", i)
		} else if i > 30 && strings.Contains(err.Error(), text[20:i]) {
			t.Errorf("the error tells the token: %v", err)
		}
	}
	bad := func(change func(*Token)) string {
		x := tok
		change(&x)
		return x.Text()
	}
	for what, text := range map[string]string{
		"a bad address":       bad(func(x *Token) { x.Addresses = []string{"host"} }),
		"a short id":          bad(func(x *Token) { x.ID = "A" }),
		"a lower-case secret": bad(func(x *Token) { x.Secret = strings.ToLower(x.Secret) }),
		"a long one":          bad(func(x *Token) { x.Addresses = slices.Repeat([]string{"host:1"}, 1000) }),
	} {
		if _, err := ParseToken(text); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if tok.String() == text || strings.Contains(tok.String(), tok.Secret) {
		t.Errorf("%s shows its secret", tok)
	}
}

// TestTokenExpiresAfterItsLifetime: a token is valid from its creation to its end, and never longer than
// tokens may last, also if it was written by other means.
func TestTokenExpiresAfterItsLifetime(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		made, expires time.Duration // from now
		want          string
	}{
		{-time.Minute, time.Hour, ""},
		{time.Minute, jointoken.MaxTokenLife + time.Minute, ""}, // of a clock that differs
		{-2 * time.Hour, -time.Hour, "ended on"},
		{time.Hour, 2 * time.Hour, "later than it is here"},
		{-time.Minute, 10 * 365 * 24 * time.Hour, "none is good for more than"},
		{-10 * 365 * 24 * time.Hour, time.Hour, "none is good for more than"},
	} {
		row := tokenRow{Made: now.Add(tt.made), Expires: now.Add(tt.expires)}
		if got := row.whyInvalid(now); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("made %s, ends %s from now: %q, want %q", tt.made, tt.expires, got, tt.want)
		}
	}
}

// TestWarningsNameUnresponsiveMembers: who is silent, how much more may be lost, two members, a removal that
// was interrupted, and space.
func TestWarningsNameUnresponsiveMembers(t *testing.T) {
	up := func(name string) Info {
		return Info{Name: name, Role: Voter, Status: Status{Leader: 1, Quota: 100 << 20, Free: 1 << 40}}
	}
	down := func(name string) Info { return Info{Name: name, Role: Voter, Err: errors.New("silent")} }
	lost := func(name string) Info { // it answers, and has no leader
		i := up(name)
		i.Status.Leader = 0
		return i
	}
	full := up("f")
	full.Status.Size, full.Status.InUse = 81<<20, 10<<20
	disk := up("d")
	disk.Status.Free = 100 << 20
	ends := func(name string, left time.Duration, e CertificateExpiry) Info {
		i := up(name)
		e.What, e.Subject, e.Ends = "it", "CN=x", time.Now().Add(left)
		i.Status.Ends = []CertificateExpiry{e}
		return i
	}
	day := 24 * time.Hour
	root, former := CertificateExpiry{Authority: true}, CertificateExpiry{Authority: true, Former: true}
	for _, c := range []struct {
		all  []Info
		want []string // a part of each warning
	}{
		{[]Info{ends("a", 24*day, CertificateExpiry{})}, nil}, // it renews itself
		{[]Info{ends("a", 22*day, CertificateExpiry{}), up("b"), up("c")}, []string{"a: it (CN=x) ends on "}},
		{[]Info{ends("a", -day, CertificateExpiry{})}, []string{"a: it (CN=x) has ended on "}},
		{[]Info{ends("a", 0, CertificateExpiry{Error: "tls.key is missing"})}, []string{"a: it cannot be used: tls.key is missing"}},
		{[]Info{ends("a", 181*day, root)}, nil},
		{[]Info{ends("a", 179*day, root), ends("b", 179*day, root), ends("c", 179*day, root)}, []string{"it (CN=x) ends on "}},
		{[]Info{ends("a", 31*day, former)}, nil},
		{[]Info{ends("a", 29*day, former)}, []string{"restart netmasters"}},
		{[]Info{up("a")}, nil},
		{[]Info{up("a"), up("b"), up("c")}, nil},
		{[]Info{up("a"), up("b"), {Name: "c", Role: Learner, Err: errors.New("new")}}, []string{"two members"}},
		{[]Info{up("a"), down("b")}, []string{"two members", "b: no answer of 1 of 2 members, with one more lost it stops"}},
		{[]Info{up("a"), up("b"), lost("c")}, []string{"c: no answer of 1 of 3 members, with one more lost it stops"}},
		{[]Info{up("a"), up("b"), up("c"), up("d"), down("e")}, []string{"1 more may be lost"}},
		{[]Info{up("a"), {Name: "x", Role: Removed, Err: errors.New("none")}}, []string{"repeat 'netctl cluster remove x'"}},
		{[]Info{full}, []string{"f: the store has 84 MB of the 104 MB that it may have, 10 MB of it in use"}},
		{[]Info{disk}, []string{"d: the store's disk has 104 MB free"}},
	} {
		got := Warnings(c.all)
		if len(got) != len(c.want) {
			t.Errorf("%+v: %q, want %q", c.all, got, c.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%+v: %q, want %q", c.all, got[i], c.want[i])
			}
		}
	}
}

// TestNextSnapshotFollowsTheNewest: the next snapshot follows the newest there is; a name that is no time, or
// is of the future, makes one due now.
func TestNextSnapshotFollowsTheNewest(t *testing.T) {
	s := Schedule{Dir: t.TempDir(), Every: time.Hour}
	if due, err := s.due(); err != nil || !due.IsZero() {
		t.Errorf("without any, %v, %v", due, err)
	}
	now := time.Now().UTC()
	for _, c := range []struct {
		name string
		due  bool
	}{{now.Add(-2 * time.Hour).Format(snapshotTime), true}, {now.Format(snapshotTime), false}, {now.Add(2 * time.Hour).Format(snapshotTime), true}, {"z", true}} {
		if err := os.WriteFile(filepath.Join(s.Dir, snapshotPrefix+c.name+snapshotSuffix), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if due, err := s.due(); err != nil || due.After(now) != !c.due {
			t.Errorf("after %s the next is due at %v, %v", c.name, due, err)
		}
	}
	if err := (Schedule{Every: time.Second}).check(); err == nil {
		t.Error("a snapshot each second is taken")
	}
	if err := (Schedule{Keep: -1}).check(); err == nil {
		t.Error("less than none is taken")
	}
}

// TestOtherMembersAreReportedWhenFoundSeveralTimes: a member that restarts is no news, one that stays
// away is.
func TestOtherMembersAreReportedWhenFoundSeveralTimes(t *testing.T) {
	away := []string{"netmaster2: no answer"}
	var o otherMembers
	for i, x := range []struct {
		found         []string
		reported, ask bool
	}{
		{nil, false, false},
		{away, false, true},
		{away, false, true},
		{nil, false, false},
		{away, false, true},
		{away, false, true},
		{away, false, true},
		{away, true, false},
		{away, true, false},
		{nil, false, false},
	} {
		o.found(x.found)
		if reported := len(o.confirmed()) > 0; reported != x.reported || o.unconfirmed() != x.ask {
			t.Errorf("check %d: reported %v, checked again at once %v; want %v, %v", i, reported, o.unconfirmed(), x.reported, x.ask)
		}
	}
}
