package observe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// certificatesLast reports this netplugin's certificates that have ended, or will soon.
// That alone cuts nothing off: the host works until then. Afterwards it may be without a
// netmaster, which is a condition of its own.
func certificatesLast(_ context.Context, cfg *Config, _ *observation) error {
	ended, soon := cfg.support().CertificateProblems(time.Now())
	if all := slices.Concat(ended, soon); len(all) > 0 {
		return errors.New(strings.Join(all, "; "))
	}
	return nil
}
