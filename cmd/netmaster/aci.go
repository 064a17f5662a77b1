package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/controller"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
)

// aciOptions are the flags about the ACI fabric, which is kept with infrastructure type
// aci alone.
type aciOptions struct {
	gateway  string // of 1.x
	merges   bool
	apic     []string // empty = the gateway
	user     string
	password string // file
	ca       string // file
	cluster  string
}

func (o *aciOptions) register(fs *flags.Set) {
	o.gateway, o.cluster = aci.GatewayURL, "contiv"
	fs.String(&o.gateway, "aci-gw", "url", "with infrastructure type aci and no --apic: the ACI gateway of 1.x that gets the app profiles").Must(func(v string) error { return checkFabricURLs([]string{v}) })
	fs.Bool(&o.merges, "aci-gw-merges", "the ACI gateway only adds to a profile, as in 1.x: to remove something the profile is deleted and created again, which interrupts its traffic")
	fs.Strings(&o.apic, "apic", "urls", "with infrastructure type aci: the APICs of the fabric, such as https://apic1,https://apic2; each is asked when another does not answer; instead of an ACI gateway").Must(func(v string) error { return checkFabricURLs(flags.Split(v)) })
	fs.String(&o.user, "apic-user", "name", `user at the APIC, such as contiv, or apic#DOMAIN\contiv of a login domain`).Must(notEmpty)
	fs.String(&o.password, "apic-password-file", "file", "file with the password of --apic-user; read when this netmaster becomes the leader").Must(notEmpty)
	fs.String(&o.ca, "apic-ca", "file", "certificates, in PEM, of the authorities that the APICs' certificates are verified with").Must(notEmpty).Else("the system's")
	fs.String(&o.cluster, "apic-cluster", "name", "name of this cluster in its objects at the APIC; unique in the fabric; must not change while there are such objects").Must(notEmpty)
}

// checkFabricURLs refuses what is no URL of a server, and passwords in one.
func checkFabricURLs(list []string) error {
	for _, s := range list {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			return errors.New("must be URLs such as https://apic1, without user and password")
		}
	}
	return nil
}

// finish checks what needs more than one flag.
func (o *aciOptions) finish(fs *flags.Set) error {
	if len(o.apic) == 0 {
		for _, flag := range []string{"apic-user", "apic-password-file", "apic-ca", "apic-cluster"} {
			if how := fs.Given(flag); how != "" {
				return flags.Usagef("%s is for an APIC; name it with --apic", how)
			}
		}
		return nil
	}
	for _, flag := range []string{"aci-gw", "aci-gw-merges"} {
		if how := fs.Given(flag); how != "" {
			return flags.Usagef("%s is for an ACI gateway, and --apic names APICs; omit one", how)
		}
	}
	if o.user == "" || o.password == "" {
		return flags.Usagef("--apic needs --apic-user and --apic-password-file")
	}
	if _, err := o.target(controller.SentState{}); err != nil {
		return flags.Usagef("--apic: %w", err)
	}
	return nil
}

// target makes what keeps the fabric.
func (o *aciOptions) target(m controller.SentState) (aci.Target, error) {
	if len(o.apic) == 0 {
		return aci.NewGateway(aci.GatewayConfig{URL: o.gateway, Merges: o.merges, Sent: m.Sent, Keep: m.Save})
	}
	password, err := os.ReadFile(o.password)
	if err != nil {
		return nil, fmt.Errorf("the password of the APIC's user: %w", err)
	}
	through := http.DefaultTransport
	if o.ca != "" {
		client, err := transport.UnmanagedClient(o.ca)
		if err != nil {
			return nil, fmt.Errorf("the authority of the APIC's certificate: %w", err)
		}
		through = client.Transport
	}
	return aci.NewAPIC(aci.APICConfig{
		URLs: o.apic, User: o.user, Password: strings.TrimRight(string(password), "\r\n"), Cluster: o.cluster, Transport: through,
	})
}

// description is where the fabric is kept, for people.
func (o *aciOptions) description() string {
	if len(o.apic) > 0 {
		return strings.Join(o.apic, ",")
	}
	return o.gateway
}

func (o *aciOptions) controller(ctrl *control.Controller, log *slog.Logger) *controller.Controller {
	return controller.New(controller.Config{Control: ctrl, Target: o.target, Via: o.description(), Log: log})
}

// leadFabric keeps the fabric for a term.
func leadFabric(ctx context.Context, k *controller.Controller, term store.Fence, log *slog.Logger) {
	if err := k.Lead(ctx, term); err != nil {
		log.Debug("another netmaster configures the ACI fabric", "error", err)
	}
}
