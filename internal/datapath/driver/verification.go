package driver

import "context"

// Verifier is a driver that can compare all that its data plane holds with the desired state
// at once. In the background it does so in parts (Report.Verified).
type Verifier interface {
	// Verify compares every entry that the driver writes with the desired state of the last
	// Apply, and returns how many the data plane should hold. What differs is put back and
	// counted as drift (DriftReporter). Interfaces and programs are checked by the next
	// Apply. The error is of kind model.ErrUnavailable when no desired state is in force.
	Verify(ctx context.Context) (entries int, err error)
}
