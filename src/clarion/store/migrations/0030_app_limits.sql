-- How many notifications a user of an app gets in an hour; null: as the settings of the installation
-- say, which hold for apps of earlier releases.
ALTER TABLE apps ADD COLUMN user_per_hour INTEGER;
ALTER TABLE apps ADD COLUMN category_per_hour INTEGER;
