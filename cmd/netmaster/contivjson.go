package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/model"
)

// contivJSON is the file in which Contiv 1.x was told of Kubernetes, contiv.json, which
// --kubeconfig takes too.
type contivJSON struct {
	Server   string `json:"K8S_API_SERVER"`
	CA       string `json:"K8S_CA"` // files: this one, and the next two
	Key      string `json:"K8S_KEY"`
	Cert     string `json:"K8S_CERT"`
	Token    string `json:"K8S_TOKEN"`
	Services string `json:"SVC_SUBNET"` // in which services have their addresses
}

// readContivJSON reads such a file. It returns nil for one that is none: a kubeconfig.
func readContivJSON(file string) (*contivJSON, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	keys := map[string]any{}
	if json.Unmarshal(data, &keys) != nil || keys["K8S_API_SERVER"] == nil {
		return nil, nil //nolint:nilnil,nilerr // see above
	}
	var c contivJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, model.Errorf(model.ErrInvalid, "%w: a contiv.json of 1.x has K8S_API_SERVER, K8S_CA, K8S_KEY, K8S_CERT, K8S_TOKEN and SVC_SUBNET", err)
	}
	return &c, nil
}

// config is how netmaster asks the API server: as 1.x did by the certificate, if there is
// one that can be read, and by the token.
func (c *contivJSON) config() (*rest.Config, error) {
	if _, err := os.ReadFile(c.CA); c.CA != "" && err != nil {
		return nil, fmt.Errorf("K8S_CA: %w", err)
	}
	token := strings.TrimSpace(c.Token)
	config := &rest.Config{Host: c.Server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CA}}
	if cmp.Or(c.Cert, c.Key) == "" {
		return config, nil
	}
	if _, err := tls.LoadX509KeyPair(c.Cert, c.Key); err == nil {
		config.CertFile, config.KeyFile = c.Cert, c.Key
	} else if token == "" {
		return nil, fmt.Errorf("K8S_CERT and K8S_KEY, without a K8S_TOKEN beside: %w", err)
	}
	return config, nil
}

// ranges are where services have their addresses; empty = the file says nothing of it.
func (c *contivJSON) ranges() ([]netip.Prefix, error) {
	if c.Services == "" {
		return nil, nil
	}
	if err := checkPrefixes(c.Services); err != nil {
		return nil, model.Errorf(model.ErrInvalid, "SVC_SUBNET %q: %w", c.Services, err)
	}
	return parsePrefixes(flags.Split(c.Services)), nil
}
