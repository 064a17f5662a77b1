package model

import "time"

// How long a host answers its neighbours for addresses of load balancers.
const (
	// L2ReportInterval is how often it says that it lives.
	L2ReportInterval = 500 * time.Millisecond
	// L2LeaseTime is for how long it answers after it has said so.
	L2LeaseTime = 1700 * time.Millisecond
	// L2SilenceTime is after how long without a sign of life another one may.
	L2SilenceTime = 2 * time.Second
)
