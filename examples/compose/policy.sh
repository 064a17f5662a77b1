#!/bin/sh
# Makes the network, groups and policy of docker-compose.yml.
set -e
netctl net create --subnet 10.77.0.0/24 --gateway 10.77.0.254 shop
for group in app db; do
  netctl policy create "shop-$group"
  netctl policy rule-add --direction in --action deny --priority 1 "shop-$group" all
done
netctl group create shop shop-web
netctl group create --policy shop-app shop shop-app
netctl group create --policy shop-db shop shop-db
netctl policy rule-add --direction in --action allow --priority 2 --protocol tcp --port 8080 --from-group shop-web shop-app web
netctl policy rule-add --direction in --action allow --priority 2 --protocol tcp --port 5432 --from-group shop-app shop-db app
