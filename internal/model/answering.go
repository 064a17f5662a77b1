package model

import "time"

// How long a host answers its neighbours for addresses of load balancers.
const (
	// AnswerEvery is how often it says that it lives.
	AnswerEvery = 500 * time.Millisecond
	// AnswerFor is for how long it answers after it has said so.
	AnswerFor = 1700 * time.Millisecond
	// AnswerSilence is after how long without a sign of life another one may.
	AnswerSilence = 2 * time.Second
)
