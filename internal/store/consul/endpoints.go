package consul

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/contiv/netplugin/v2/internal/model"
)

// ParseEndpoints checks Consul's addresses and returns them as URLs. A bare
// host:port and consul:// (as the documents of 2017 have it) mean http://.
func ParseEndpoints(endpoints []string) ([]string, error) {
	if len(endpoints) == 0 {
		return nil, model.InvalidField("consul-endpoints", "", "must name at least one Consul agent, such as http://127.0.0.1:8500")
	}
	var parsed []string
	for _, ep := range endpoints {
		bad := model.InvalidField("consul-endpoints", ep, "must be http://host:port, https://host:port or consul://host:port")
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
		case "consul":
			u.Scheme = "http"
		default:
			return nil, bad
		}
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil || host == "" || port == "" {
			return nil, bad
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, model.InvalidField("consul-endpoints", ep, "must be http://host:port with a port between 1 and 65535")
		}
		u.Path = ""
		parsed = append(parsed, u.String())
		if strings.HasPrefix(parsed[0], "https:") != strings.HasPrefix(u.String(), "https:") {
			return nil, model.InvalidField("consul-endpoints", strings.Join(endpoints, ","), "must be all http or all https")
		}
	}
	return parsed, nil
}

// ParseFlag is ParseEndpoints for the value of a flag: the error says only what
// is allowed, since whoever reads flags names the flag and the value.
func ParseFlag(endpoints []string) ([]string, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("must name a Consul agent, such as http://127.0.0.1:8500")
	}
	out, err := ParseEndpoints(endpoints)
	if bad, ok := errors.AsType[*model.FieldError](err); ok {
		return nil, errors.New(bad.Want)
	}
	return out, err
}

// IsClusterStore tells whether the value that the documents of 2017 give to
// --cluster-store names a Consul.
func IsClusterStore(v string) bool { return strings.HasPrefix(v, "consul://") }

// CheckClusterStore checks such a value: one consul://host:port.
func CheckClusterStore(v string) error {
	if strings.Contains(v, ",") {
		return errors.New("must be consul://host:port")
	}
	_, err := ParseFlag([]string{v})
	return err
}

// ReadToken reads a file that holds a token of Consul's access control; "" = none.
func ReadToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token of Consul: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, unicode.IsSpace) {
		return "", fmt.Errorf("token of Consul: %s must hold one token and nothing else", file)
	}
	return token, nil
}
