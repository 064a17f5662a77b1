package dns

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// ResolvConf is where a host's resolvers are listed.
	ResolvConf = "/etc/resolv.conf"
	// Port is the port of name servers (RFC 1035 section 4.2).
	Port = 53

	maxUpstreams  = 3           // as resolv.conf(5) has it
	rereadEvery   = time.Second // at most
	maxResolvConf = 64 << 10    // bytes
)

// upstreams are the host's resolvers: a given list, or the list of a file, which is read
// again when the file has changed.
type upstreams struct {
	fixed   []netip.AddrPort
	path    string
	now     func() time.Time
	log     *slog.Logger
	changed func() // called when the list has changed

	mu      sync.Mutex
	self    []netip.AddrPort // where this server listens: never an upstream
	checked time.Time
	text    []byte
	read    bool
	list    []netip.AddrPort
	problem string

	replaced   []netip.AddrPort // the file's resolvers, where a given list replaces them
	replacedAt time.Time        // when they were read
}

// get returns the resolvers to ask, in order.
func (u *upstreams) get() []netip.AddrPort {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	if u.read && (u.fixed != nil || now.Sub(u.checked) < rereadEvery) {
		return u.list
	}
	u.checked = now
	list, problem := u.fixed, ""
	if u.fixed == nil {
		text, err := readBounded(u.path)
		if err == nil && u.read && bytes.Equal(text, u.text) {
			return u.list
		}
		if err == nil {
			u.text = text
			list, err = parseResolvConf(text)
		}
		if err != nil {
			problem = err.Error()
		}
	}
	list, problem = u.excludeSelf(list, problem)
	if len(list) == 0 && problem == "" {
		problem = "no resolver is listed"
	}
	if problem != u.problem && problem != "" {
		u.log.Warn("names outside the cluster cannot be resolved", "file", u.path, "problem", problem)
	}
	if was := u.read; was && !slices.Equal(list, u.list) {
		u.log.Info("the host's resolvers have changed", "resolvers", list)
		u.changed()
	}
	u.read, u.list, u.problem = true, list, problem
	return list
}

func (u *upstreams) excludeSelf(list []netip.AddrPort, problem string) ([]netip.AddrPort, string) {
	out := slices.DeleteFunc(slices.Clone(list), func(a netip.AddrPort) bool {
		for _, self := range u.self {
			if a == self || a == netip.AddrPortFrom(self.Addr(), Port) { // what is sent there comes here
				problem = fmt.Sprintf("resolver %s is this name server itself: it is left out", self.Addr())
				return true
			}
		}
		return false
	})
	return out, problem
}

// listen tells on which addresses the server listens.
func (u *upstreams) listen(at ...netip.AddrPort) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.self, u.read = at, false
}

// listenAddress is the address on which the server listens for a client; zero = none of the
// client's family.
func (u *upstreams) listenAddress(from netip.Addr) netip.AddrPort {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.self {
		if a.Addr().Is4() == from.Is4() {
			return a
		}
	}
	return netip.AddrPort{}
}

// isUpstream reports whether a server is one of the host's resolvers: one that is asked, or one of
// the file although a given list replaces the file's.
func (u *upstreams) isUpstream(server netip.Addr) bool {
	is := func(a netip.AddrPort) bool { return a.Addr() == server }
	if slices.ContainsFunc(u.get(), is) {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := u.now(); u.fixed != nil && (u.replacedAt.IsZero() || now.Sub(u.replacedAt) >= rereadEvery) {
		u.replaced, u.replacedAt = nil, now
		if text, err := readBounded(u.path); err == nil { // a host without the file has no such resolvers
			u.replaced, _ = parseResolvConf(text)
		}
	}
	return slices.ContainsFunc(u.replaced, is)
}

func (u *upstreams) state() (list []netip.AddrPort, problem string) {
	list = u.get()
	u.mu.Lock()
	defer u.mu.Unlock()
	return list, u.problem
}

func readBounded(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxResolvConf {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxResolvConf)
	}
	return os.ReadFile(path)
}

// parseResolvConf reads the first resolvers of a resolv.conf(5); lines that it
// cannot read are passed over, as the C library does.
func parseResolvConf(text []byte) ([]netip.AddrPort, error) {
	conf, err := dns.ClientConfigFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read resolvers: %w", err)
	}
	var out []netip.AddrPort
	for _, s := range conf.Servers {
		a, err := netip.ParseAddr(s)
		if err == nil && len(out) < maxUpstreams {
			out = append(out, netip.AddrPortFrom(a, Port))
		}
	}
	return out, nil
}

// ParseUpstreams reads a list of resolvers' addresses, with or without port,
// separated by commas; nil for an empty one.
func ParseUpstreams(text string) ([]netip.AddrPort, error) {
	if text == "" {
		return nil, nil
	}
	var out []netip.AddrPort
	for s := range strings.SplitSeq(text, ",") {
		s = strings.TrimSpace(s)
		ap, err := netip.ParseAddrPort(s)
		if a, bare := netip.ParseAddr(s); bare == nil {
			ap, err = netip.AddrPortFrom(a, Port), nil
		}
		if err != nil || ap.Port() == 0 {
			return nil, fmt.Errorf("resolver %q must be an address such as 192.0.2.1, with or without :port", s)
		}
		out = append(out, ap)
	}
	return out, nil
}
