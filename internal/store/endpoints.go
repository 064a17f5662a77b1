package store

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// EndpointForm says how the servers of a kind of store are named.
type EndpointForm struct {
	Flag    string // that takes them, without dashes
	Server  string // what one is called: etcd
	Article string // before Server
	Scheme  string // by which the documents of 2017 named one; it means http
	Port    string // the usual one
}

// Parse checks addresses and returns them as URLs. A bare host:port and Scheme
// mean http://. Bad ones are model.ErrInvalid.
func (f EndpointForm) Parse(endpoints []string) ([]string, error) {
	if len(endpoints) == 0 {
		return nil, model.InvalidField(f.Flag, "", "must name at least one "+f.Server+", such as "+f.example())
	}
	parsed := make([]string, 0, len(endpoints))
	for _, ep := range endpoints {
		bad := model.InvalidField(f.Flag, ep, "must be http://host:port, https://host:port or "+f.Scheme+"://host:port")
		text := strings.TrimSpace(ep)
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
			return nil, bad
		}
		switch u.Scheme {
		case "http", "https":
		case f.Scheme:
			u.Scheme = "http"
		default:
			return nil, bad
		}
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil || host == "" || port == "" {
			return nil, bad
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, model.InvalidField(f.Flag, ep, "must be http://host:port with a port between 1 and 65535")
		}
		u.Path = ""
		parsed = append(parsed, u.String())
		if parsed[0][:5] != u.String()[:5] {
			return nil, model.InvalidField(f.Flag, strings.Join(endpoints, ","), "must be all http or all https")
		}
	}
	return parsed, nil
}

func (f EndpointForm) example() string { return "http://127.0.0.1:" + f.Port }

// ParseFlag is Parse for the value of a flag: the error says only what is allowed, since
// the caller names the flag and the value.
func (f EndpointForm) ParseFlag(endpoints []string) ([]string, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("must name " + f.Article + " " + f.Server + ", such as " + f.example())
	}
	out, err := f.Parse(endpoints)
	if bad, ok := errors.AsType[*model.FieldError](err); ok {
		return nil, errors.New(bad.Want)
	}
	return out, err
}
