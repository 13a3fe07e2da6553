package bad

import (
	clock "time"
)

func nap() {
	clock.Sleep(1)
}
